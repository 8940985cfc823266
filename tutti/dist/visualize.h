// Pictures of who holds what.
#pragma once

#include <string>

#include "tutti/dist/spec.h"

namespace tutti::dist {

// The rows and columns of a tensor of one or two dims with the ranks that hold them, as text: cells are ranges of
// indices, "0 1" in one means that both ranks hold it. Ranks that hold nothing, and axes whose values are still to be
// reduced, are named below. UsageError for more dims: select() two of them.
std::string visualize(const Tensor& t);
std::string visualize(const DTensorSpec& spec, const std::vector<int>& ranks);

// The same as an SVG picture, complete with its header.
std::string visualize_svg(const DTensorSpec& spec, const std::vector<int>& ranks);

}  // namespace tutti::dist
