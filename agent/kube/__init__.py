"""The Node: ownership, plan, server-side apply, and the API client."""
