// Expansion of the paths that a user gives with --data into a list of files.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tutti {

// Each path is there, or is a glob with * ? [ ] (matches in sorted order), whose matches take its place. UsageError
// when a path does not exist (suggesting the nearest entry in its folder), a glob matches nothing, or there is no path.
std::vector<std::string> expand_patterns(std::span<const std::string> paths);

// The files of expand_patterns(), and for a folder all regular files below it in the byte order of their paths; names
// that begin with a dot are skipped, links to folders are not followed. The order of `paths` is kept; a file named
// twice is read twice. UsageError as expand_patterns(), and when there is no file at all; EnvironmentError when a
// folder cannot be read.
std::vector<std::string> expand_text_paths(std::span<const std::string> paths);

}  // namespace tutti
