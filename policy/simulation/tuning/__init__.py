"""Search for better rules: what may vary, the search, its study in the record, and its outcome."""
