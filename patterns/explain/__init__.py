"""Why a rule matches at a node or does not, and programs printed in the notation of rules."""
