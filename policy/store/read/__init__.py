"""Reading the record: queries, history figures, reports, SQL of the user's own."""
