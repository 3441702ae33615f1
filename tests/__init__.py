"""Stories, tables, laws, theory and agreement."""
