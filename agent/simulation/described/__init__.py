"""A fleet as a TOML file describes it: boards, links, events."""
