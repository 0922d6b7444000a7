"""Which events are wanted? Filters compare the fields of an event, and never run code."""

from noonmark import matches

filters = {
    "path": {"prefix": "/invoices/", "suffix": ".pdf"},
    "size": {"gt": 0, "lte": 10_000_000},
    "customer.country": ["SE", "NO"],
    "draft": {"exists": False},
    "source": "scanner",
}
invoice = {"path": "/invoices/42.pdf", "size": 81_920, "customer": {"country": "SE"}}
uploads = {
    "an invoice": invoice,
    "a picture": invoice | {"path": "/invoices/42.png"},
    "an empty file": invoice | {"size": 0},
    "a size in text": invoice | {"size": "81920"},
    "from Denmark": invoice | {"customer": {"country": "DK"}},
    "from nowhere": invoice | {"customer": {}},
    "a draft": invoice | {"draft": True},
}

for name, payload in uploads.items():
    print(f"{name:15} {'yes' if matches(filters, payload, source='scanner') else 'no'}")
print(f"{'sent by mail':15} {'yes' if matches(filters, invoice, source='mail') else 'no'}")

# Output:
# an invoice      yes
# a picture       no
# an empty file   no
# a size in text  no
# from Denmark    no
# from nowhere    no
# a draft         no
# sent by mail    no
