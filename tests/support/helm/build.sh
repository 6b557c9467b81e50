#!/bin/sh
# Build helm from the Go module that go.mod pins; quick when it is there already. It prints the folder that the tests
# look into. To use a helm of your own instead, name its file in HELM. It wants the Go that go.mod names.
set -eu
cd "$(dirname "$0")"
. ../go.sh
module=helm.sh/helm/v3
version_of() { awk -v module="$1" '$1 == "require" {$0 = substr($0, 9)} $1 == module {print $2; exit}' go.mod; }
version=$(version_of $module)
cached "helm/$version" helm
begin "build helm"

# Without cluster, `helm template` and `helm lint` take the version of Kubernetes that helm was made for.
minor=$(version_of k8s.io/client-go)
minor=${minor#v0.}
minor=${minor%%.*}
flags="-s -w -X $module/internal/version.version=$version"
for package in chartutil lint/rules; do
    flags="$flags -X $module/pkg/$package.k8sVersionMajor=1 -X $module/pkg/$package.k8sVersionMinor=$minor"
done
echo "building helm $version: minutes, the first time" >&2
twice go build -trimpath -ldflags "$flags" -o "$work/helm" $module/cmd/helm
keep helm
echo "$cache"
