"""Workers of a job: their connections, requests and answers."""
