"""The tables, their installation, migrations, accounts and views."""
