#!/bin/sh
# Build helm from the Go module that go.mod pins; quick when it is there already. It prints the folder that the tests
# look into. To use a helm of your own instead, name its file in HELM. It wants the Go that go.mod names.
set -eu
cd "$(dirname "$0")"
module=helm.sh/helm/v3
version_of() { awk -v module="$1" '$1 == "require" {$0 = substr($0, 9)} $1 == module {print $2; exit}' go.mod; }
version=$(version_of $module)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/helm/$version

if [ -x "$cache/helm" ]; then
    echo "$cache"
    exit
fi
command -v go >/dev/null || { echo "there is no Go to build helm with" >&2; exit 1; }

# Without cluster, `helm template` and `helm lint` take the version of Kubernetes that helm was made for.
minor=$(version_of k8s.io/client-go)
minor=${minor#v0.}
minor=${minor%%.*}
flags="-s -w -X $module/internal/version.version=$version"
for package in chartutil lint/rules; do
    flags="$flags -X $module/pkg/$package.k8sVersionMajor=1 -X $module/pkg/$package.k8sVersionMinor=$minor"
done

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
echo "building helm $version: minutes, the first time" >&2
CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$work/helm" $module/cmd/helm
mv "$work/helm" "$cache/helm"
echo "$cache"
