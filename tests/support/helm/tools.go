//go:build tools

// The helm client, named here so that go.mod and go.sum pin it and all it is made of.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
