//go:build tools

// The client of OCI artifacts, named here so that go.mod and go.sum pin it and all it is made of.
package tools

import _ "oras.land/oras/cmd/oras"
