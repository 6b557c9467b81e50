#!/bin/sh
# Build a Kubernetes control plane from the Go modules that go.mod pins; quick when it is there already.
#
#   build.sh              etcd, kube-apiserver and kubectl
#   build.sh all          and kube-scheduler, kube-controller-manager and kubelet
#   build.sh PROGRAM ...  these
#
# KUBERNETES=v1.30.14 builds another version than the pinned one, with the modules that its own go.mod names.
#
# It prints the folder that the tests look into. To use programs of your own instead, name their folder in
# KUBEBUILDER_ASSETS, as for envtest. It wants Go 1.24 or newer, and neither root nor a C compiler.
set -eu
cd "$(dirname "$0")"
. ../go.sh
pinned=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' go.mod)
version=${KUBERNETES:-$pinned}

case ${1-} in
"") set -- etcd kube-apiserver kubectl ;;
all) set -- etcd kube-apiserver kubectl kube-scheduler kube-controller-manager kubelet ;;
esac

# Without a version the kubelet and the scheduler take themselves for older than every API.
stamp=k8s.io/component-base/version
number=${version#v}
major=${number%%.*}
minor=${number#*.}
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=${minor%%.*}"

cached "kube/$version" "$@"
begin "build$missing"
if [ "$version" != "$pinned" ]; then
    # The staging modules, which the repository replaces with its own folders, have tags v0.MINOR.PATCH.
    theirs=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^.*"GoMod": "\(.*\)".*$/\1/p')
    [ -n "$theirs" ] || { echo "the Go modules have no Kubernetes $version" >&2; exit 1; }
    {
        echo "module kube"
        grep '^go ' "$theirs"
        echo "require k8s.io/kubernetes $version"
        awk -v tag="v0.${version#v*.}" '$2 == "v0.0.0" {print "replace", $1, "=>", $1, tag}' "$theirs"
    } >"$work/go.mod"
    cp tools.go "$work"
    cd "$work"
    export GOFLAGS="${GOFLAGS-} -mod=mod"
fi
for program in $missing; do
    case $program in
    etcd) package=go.etcd.io/etcd/server/v3 ;;
    *) package=k8s.io/kubernetes/cmd/$program ;;
    esac
    echo "building $program $version: minutes, the first time" >&2
    twice go build -trimpath -ldflags "$flags" -o "$work/$program" "$package"
    keep "$program"
done
echo "$cache"
