"""Types of rule variables: parsing, matching, drawing samples."""
