"""Word tables of the commands: parser, help, pages and completion."""
