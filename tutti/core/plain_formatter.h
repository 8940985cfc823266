// The base of fmt formatters of types that are printed in one way only.
//
// fmt's formatter of string_view, the usual base, understands widths and quotes; its code would be compiled again in
// every file that prints a shape.
#pragma once

#include <fmt/format.h>

namespace tutti {

// Accepts `{}` and no format specification. The formatter adds `fmt::appender format(const T&, fmt::format_context&)
// const`, defined in a .cpp file.
struct PlainFormatter {
  constexpr auto parse(fmt::format_parse_context& context) const { return context.begin(); }
};

}  // namespace tutti
