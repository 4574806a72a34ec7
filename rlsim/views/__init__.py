"""Views: results as text, JSON, HTML, plots and traces. They draw summaries and results; they simulate nothing."""
