"""What clients see: schedule, streaming client, records, report, comparison."""
