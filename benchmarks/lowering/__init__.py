"""Programs lowered by the official exporter and by exirkit, side by side."""
