"""How text leaves the product: escaped for people, quoted for spreadsheets, errors in words."""
