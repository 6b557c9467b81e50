# Sourced by the scripts that make programs and files of pinned Go modules, each in its own folder. What they made stays
# in the cache until go.mod, go.sum, a source or a script changes; the key stands beside each file.
key() { { cat go.mod go.sum "${0##*/}" ../go.sh; cat ./*.go 2>/dev/null; } | sha256sum; }

# cached NAME FILE ...: set cache, the folder below which NAME is kept; print it and end if it has these files.
cached() {
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/bwagent/$1
    key=$(key)
    shift
    missing=
    for file; do
        [ -e "$cache/$file" ] && [ "$(cat "$cache/.$file.key" 2>/dev/null)" = "$key" ] || missing="$missing $file"
    done
    [ -n "$missing" ] || { echo "$cache"; exit; }
}

# begin WHAT: set work, a folder that is removed in the end, to do what needs Go.
begin() {
    command -v go >/dev/null || { echo "there is no Go to $1 with" >&2; exit 1; }
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    export CGO_ENABLED=0
}

# keep FILE ...: move files from work to the cache.
keep() {
    for file; do
        mv -f "$work/$file" "$cache/$file"
        echo "$key" >"$cache/.$file.key"
    done
}

# twice COMMAND ...: once more if it fails, as a download may.
twice() { "$@" || { sleep 5 && "$@"; }; }
