"""Files, traces, pages and gaps of the developer tools, at full size."""
