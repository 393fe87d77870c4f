"""Who may have what: managers' shares, limits of users, and who may pass others in the line."""
