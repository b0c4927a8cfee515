# tests/tree/sources.sh - which files the tests of the tree look at; sourced by them.

# sources ROOT PATTERN...: the files of a checkout that git does not ignore, or, where there is no
# git, every file outside the build folders; as paths from ROOT.
sources() {
    local root=$1 pattern
    shift
    if git -C "$root" rev-parse --git-dir >/dev/null 2>&1 &&
        [ "$(git -C "$root" rev-parse --show-prefix)" = "" ]; then
        git -C "$root" ls-files --cached --others --exclude-standard -- "$@" |
            while IFS= read -r file; do [ -f "$root/$file" ] && printf '%s\n' "$file"; done
    else
        for pattern in "$@"; do
            (cd "$root" && find . -name "$pattern" -not -path './build*' -type f | sed 's,^\./,,')
        done
    fi | sort -u
}

# put ROOT/PATH: standard input becomes that file, for trees that are wrong on purpose.
put() {
    mkdir -p "$(dirname "$1")"
    cat >"$1"
}
