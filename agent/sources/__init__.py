"""What looks at the node. A source takes a Host and gives a Reading; it never raises for what it finds there."""
