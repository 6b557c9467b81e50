"""Events about the Node, as `kubectl describe node` shows them."""
