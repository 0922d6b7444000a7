"""One table."""

from django.db import models


class Order(models.Model):
    occurrence = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"

    def __str__(self):
        return self.occurrence
