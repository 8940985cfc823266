// From what a user types after --data to a list of files.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti {

// Each path is a file, a folder (all regular files below it in the byte order of their paths; names that begin with
// a dot are left out, links to folders are not followed) or a glob with * ? [ ] (matches in sorted order, folders among
// them as above). The order of `paths` is kept; a file named twice is read twice.
// UsageError when a path does not exist (naming the nearest entry beside it), a glob matches nothing, or no file is
// left; EnvironmentError when a folder cannot be read.
std::vector<std::string> expand_text_paths(std::span<const std::string> paths);

}  // namespace tutti
