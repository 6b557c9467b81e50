#!/bin/sh
# Install what the tests over real components need: switches, fabrics, an emulated machine, a Kubernetes API server
# (Debian 12 or Ubuntu 24.04).
# What each package is for stands beside it in tests/apt-packages.txt.
set -eu
cd "$(dirname "$0")"
twice() { "$@" || { sleep 5 && "$@"; }; } # a download may fail

# The distributions' own Go is too old, so Go is taken where it is. It needs no package of those below.
{
    [ -n "${KUBEBUILDER_ASSETS-}" ] || sh support/kube/build.sh all ||
        echo "no Kubernetes, or only a part of it: the tests over it will be skipped" >&2
    sh support/kueue/build.sh || echo "no types of Kueue: the tests over them will be skipped" >&2
    sh support/prometheus_operator/fetch.sh || echo "no CRDs of the Prometheus operator: their tests will be skipped" >&2
    [ -n "${ORAS-}" ] || sh support/oras/build.sh ||
        echo "no oras: the tests over it will be skipped" >&2
    [ -n "${HELM-}" ] || sh support/helm/build.sh ||
        echo "no helm: the tests over it will be skipped" >&2
} &
builds=$!
trap 'kill $builds 2>/dev/null || true' EXIT

root=$([ "$(id -u)" = 0 ] || echo sudo)
packages=$(sed 's/#.*//' apt-packages.txt)
# shellcheck disable=SC2086  # a list of names
if ! dpkg-query -W -f '${db:Status-Status}\n' $packages 2>/dev/null | awk '$1 != "installed" {exit 1}' ||
    [ "$(dpkg-query -W $packages 2>/dev/null | wc -l)" -lt "$(echo "$packages" | grep -c .)" ]; then
    export DEBIAN_FRONTEND=noninteractive
    # No daemon of theirs starts by itself: lldpd, Prometheus, the registry and containerd are run by tests only.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'kill $builds 2>/dev/null || true; $root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | $root tee "$policy" >/dev/null
        $root chmod 755 "$policy"
    fi
    twice $root apt-get update -q
    # shellcheck disable=SC2086
    twice $root apt-get install -q -y --no-install-recommends $packages
fi
twice sh support/qemu/fetch_kernel.sh
twice sh support/qemu/build_netdevsim.sh || echo "no netdevsim: its tests will be skipped" >&2
twice sh support/browser/fetch_axe.sh || echo "no axe-core: the tests of the page's accessibility will be skipped" >&2
wait "$builds"
