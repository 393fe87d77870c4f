"""The terminal under the console: themes, clipboard, suspending, the browser."""
