"""How each exhibit is shown: a table as text, and a picture where it has one."""
