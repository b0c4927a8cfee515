#!/usr/bin/env bash
# tests/tree/test_docs.sh - what the pages name is there: files that they link to, keys of a
# configuration, commands and their options.
. "$(dirname "$0")/../expect.sh" || exit 1
. "$YK_SOURCE/tests/tree/sources.sh" || exit 1
yoke=$YK_BUILD/yoke

# check_links ROOT: a line for each link to a file that is not there.
check_links() {
    (cd "$1" && sources . '*.md' | while read -r page; do
        grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | grep -vE '^[a-z]+:' | while read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "$page: there is no $link"
        done
    done)
}

# check_keys ROOT: a line for each `section.key` that is none, where the section is one.
check_keys() {
    (cd "$1" && sources . '*.md' | tr '\n' '\0' | xargs -0r grep -HoE '`[a-z_]+(\.[a-z0-9_]+)+' | sort -u |
        while IFS=: read -r page key; do
            key=${key#\`}
            grep -q "^${key%%.*}\." "$scratch/keys" || continue
            grep -qE "^$key(\.|$)" "$scratch/keys" || echo "$page: there is no key $key"
        done)
}

# check_commands ROOT: a line for each command or option in a block of a page that the program lacks.
check_commands() {
    (cd "$1" && sources . '*.md' | while read -r page; do
        awk '/^ *```/ {inside = !inside; next} inside' "$page" | grep -oE '^(\$ )?(build/)?yoke [a-z].*' |
            sed -E 's/^(\$ )?(build\/)?yoke //' | while read -r line; do
            command=${line%% *}
            case $command in data | bench) command=$(cut -d" " -f1,2 <<<"$line") ;; esac
            [ "$command" != launch ] || line=${line%% train*}
            help=$("$yoke" $command --help 2>&1) || echo "$page: there is no command $command"
            grep -oE -- ' --[a-z-]+' <<<"$line" | while read -r option; do
                grep -qE -- "$option( |,|\$)" <<<"$help" || echo "$page: $command has no option $option"
            done
        done
    done)
}

# check_demos ROOT: a line for each command that trains the demo without a folder of its own: `make demo` has written
# that of the file's name, and the command would be refused.
check_demos() {
    (cd "$1" && { sources . '*.md'; sources . 'cli/*.c'; } | while read -r page; do
        awk -v md="${page##*.}" '/^ *```/ {inside = !inside; next} inside || md != "md"' "$page" |
            grep -E 'yoke (launch .*)?train configs/demo.yaml' | grep -v 'run\.dir=' | sed "s|^|$page: |"
    done)
}

# plan_again PAGE: a line for each plan in a block of a page, `$ yoke plan FILE ...`, whose output is not what the block
# shows between its "..."; the files are the page's, in blocks that begin with `# FILE`.
plan_again() {
    rm -rf "$scratch/plans" && mkdir "$scratch/plans" && (cd "$scratch/plans" || exit
        awk '/^```/ {inside = !inside; name = ""; n += inside; next}
             inside && /^# [a-z0-9]+\.yaml$/ {name = $2}
             inside {print > (name ? name : n ".block")}' "$1"
        grep -lE '^\$ yoke plan ' ./*.block | while read -r block; do
            read -r -a words < <(sed -n '1s/^\$ yoke //p' "$block")
            said=$("$yoke" "${words[@]}" 2>&1 | tr -s ' \n' ' ')
            tail -n +2 "$block" | tr -s ' \n' ' ' | sed 's/\.\.\./\n/g; s/ *$//' | while read -r piece || [ -n "$piece" ]; do
                [[ $said == *"$piece"* ]] || echo "${words[*]}: there is no '$piece' in: $said"
            done
        done)
}

"$yoke" config | sed -n 's/^\([a-z0-9_.]*\)  (.*/\1/p' >"$scratch/keys"
[ -s "$scratch/keys" ] || fail "yoke config names no key"

bad=$scratch/bad
put "$bad/docs/page.md" <<'EOF'
[there](page.md), [a part](page.md#part), [far](https://example.org/x), [not there](gone.md)
`optim.lr` and `precision.loss_scale` are keys, `optim.rate` is none, `README.md` and `engine/step.c` neither.
```
$ yoke train a.yaml --set optim.lr=1
build/yoke eval runs/a --dato b.txt
yoke sing a.yaml
yoke launch -n 2 train configs/demo.yaml
```
EOF

case_is "each fault is found"
run check_links "$bad"
[ "$(sed 's|^\./||' <<<"$out")" = "docs/page.md: there is no gone.md" ] || fail "other complaints"
run check_keys "$bad"
[ "$(sed 's|^\./||' <<<"$out")" = "docs/page.md: there is no key optim.rate" ] || fail "other complaints"
run check_commands "$bad"
[ "$(sed 's|^\./||' <<<"$out")" = "docs/page.md: eval has no option --dato
docs/page.md: there is no command sing" ] || fail "other complaints"

run check_demos "$bad"
[ "$(sed 's|^\./||' <<<"$out")" = "docs/page.md: yoke launch -n 2 train configs/demo.yaml" ] || fail "other complaints"

case_is "a plan that a page shows otherwise than it is, is found"
put "$bad/docs/plan.md" <<'EOF'
```yaml
# tiny.yaml
model: {preset: gpt2-124m}
```
```
$ yoke plan tiny.yaml --device 4090d
memory      item                                    bytes
...
limit                                   23.64 GiB  25383256718
```
EOF
run plan_again "$bad/docs/plan.md"
expect_text out "plan tiny.yaml --device 4090d: there is no 'limit 23.64 GiB 25383256718' in: "
[ "$(wc -l <<<"$out")" -eq 1 ] || fail "other complaints"

case_is "the plans of docs/memory.md are what is planned"
run plan_again "$YK_SOURCE/docs/memory.md"
[ -z "$out" ] || fail "other plans"
[ "$(ls "$scratch/plans"/*.yaml | wc -l)" -eq 4 ] || fail "not four files"

case_is "the tree has none"
run check_demos "$YK_SOURCE"
[ -z "$out" ] || fail "commands that are refused once the demo has run"
run check_links "$YK_SOURCE"
[ -z "$out" ] || fail "dead links"
run check_keys "$YK_SOURCE"
[ -z "$out" ] || fail "keys that there are not"
run check_commands "$YK_SOURCE"
[ -z "$out" ] || fail "commands that there are not"

passed
