# Sourced by run.sh and test.sh: installs what packages.txt names and is missing. As root or with sudo without a
# password; otherwise prints the one line to run and stops.
tutti_install_packages() {
  local root=$1 missing=() name
  while read -r name; do
    case $name in
      ''|'#'*) continue ;;
      ci:*) [ -n "${CI:-}" ] || continue; name=${name#ci:} ;;
    esac
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done < "$root/packages.txt"
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
      sudo=(sudo)
    else
      echo "Missing packages. Run this, then start again:" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "Installing ${missing[*]}" >&2
  "${sudo[@]}" apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}
