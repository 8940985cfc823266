#include "tutti/dist/visualize.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/dist/moves.h"
#include "tutti/dist/wrapper.h"

namespace tutti::dist {
namespace {

// The dims as rows and columns, cut at every border that some rank has, and the ranks of each cell.
struct Grid {
  std::vector<Range> rows, columns;
  std::map<std::pair<size_t, size_t>, std::vector<int>> cells;
  std::vector<int> empty;  // ranks that hold nothing
};

std::vector<Range> ranges_between(const std::set<int64_t>& borders) {
  std::vector<Range> ranges;
  for (auto it = borders.begin(); it != borders.end() && std::next(it) != borders.end(); ++it)
    ranges.push_back({*it, *std::next(it)});
  return ranges;
}

bool holds(const IndexSet& set, const Range& range) {
  return std::any_of(set.ranges().begin(), set.ranges().end(),
                     [&](const Range& r) { return r.begin <= range.begin && range.end <= r.end; });
}

Grid grid_of(const DTensorSpec& spec, const std::vector<int>& ranks) {
  const int ndim = spec.sizes().ndim();
  TUTTI_CHECK(ndim <= 2, "visualize: {} has {} dims, and a picture two; select() among the others first",
              spec.to_string(), ndim);
  const auto coordinates = coordinates_of(spec.mesh_shape());
  TUTTI_CHECK(coordinates.size() == ranks.size(), "visualize: {} ranks for a mesh of {}", ranks.size(),
              coordinates.size());
  const auto indices = [&](int dim, size_t rank) {
    return ndim == 2               ? spec.indices(dim, coordinates[rank])
           : dim == 1 && ndim == 1 ? spec.indices(0, coordinates[rank])
                                   : IndexSet(1);
  };
  std::set<int64_t> borders[2];
  for (int dim = 0; dim < 2; ++dim) {
    borders[dim] = {0, ndim == 2               ? spec.sizes()[static_cast<size_t>(dim)]
                       : dim == 1 && ndim == 1 ? spec.sizes()[0]
                                               : 1};
    for (size_t r = 0; r < ranks.size(); ++r) {
      const IndexSet held = indices(dim, r);
      for (const Range& range : held.ranges()) borders[dim].insert(range.begin), borders[dim].insert(range.end);
    }
  }
  Grid grid{.rows = ranges_between(borders[0]), .columns = ranges_between(borders[1]), .cells = {}, .empty = {}};
  for (size_t r = 0; r < ranks.size(); ++r) {
    const IndexSet rows = indices(0, r), columns = indices(1, r);
    if (rows.size() == 0 || columns.size() == 0) grid.empty.push_back(ranks[r]);
    for (size_t i = 0; i < grid.rows.size(); ++i) {
      for (size_t j = 0; j < grid.columns.size(); ++j) {
        if (holds(rows, grid.rows[i]) && holds(columns, grid.columns[j])) grid.cells[{i, j}].push_back(ranks[r]);
      }
    }
  }
  return grid;
}

std::string label(const Range& r) {
  return r.size() == 1 ? fmt::format("{}", r.begin) : fmt::format("{}-{}", r.begin, r.end - 1);
}

std::string remarks(const DTensorSpec& spec, const Grid& grid) {
  std::string text;
  if (!grid.empty.empty()) text += fmt::format("no elements: ranks {}\n", fmt::join(grid.empty, " "));
  for (size_t axis = 0; axis < spec.placements().size(); ++axis) {
    const Placement& p = spec.placements()[axis];
    if (p.is_partial()) text += fmt::format("mesh dim {}: terms, to be combined by {}\n", axis, name_of(p.op()));
  }
  return text;
}

}  // namespace

std::string visualize(const DTensorSpec& spec, const std::vector<int>& ranks) {
  const Grid grid = grid_of(spec, ranks);
  std::vector<std::vector<std::string>> table{{spec.sizes().ndim() == 2 ? "rows \\ columns" : ""}};
  for (const Range& column : grid.columns) table[0].push_back(label(column));
  for (size_t i = 0; i < grid.rows.size(); ++i) {
    table.push_back({spec.sizes().ndim() == 2 ? label(grid.rows[i]) : "ranks"});
    for (size_t j = 0; j < grid.columns.size(); ++j) {
      const auto it = grid.cells.find({i, j});
      table.back().push_back(it == grid.cells.end() ? "" : fmt::format("{}", fmt::join(it->second, " ")));
    }
  }
  std::vector<size_t> widths(table[0].size(), 0);
  for (const auto& row : table) {
    for (size_t j = 0; j < row.size(); ++j) widths[j] = std::max(widths[j], row[j].size());
  }
  std::string text = spec.to_string() + "\n";
  for (const auto& row : table) {
    for (size_t j = 0; j < row.size(); ++j) text += fmt::format("{}{:<{}}", j == 0 ? "" : " | ", row[j], widths[j]);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text + remarks(spec, grid);
}

std::string visualize(const Tensor& t) {
  const Part& part = part_of(t, "visualize");
  return visualize(*part.spec, part.mesh->ranks());
}

std::string visualize_svg(const DTensorSpec& spec, const std::vector<int>& ranks) {
  constexpr int kWidth = 96, kHeight = 32, kLeft = 72, kTop = 48;
  const Grid grid = grid_of(spec, ranks);
  const int columns = static_cast<int>(grid.columns.size()), rows = static_cast<int>(grid.rows.size());
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"monospace\" "
      "font-size=\"13\">\n<text x=\"4\" y=\"16\">{}</text>\n",
      kLeft + columns * kWidth + 8, kTop + rows * kHeight + 8, spec.to_string());
  for (int j = 0; j < columns; ++j)
    text += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft + j * kWidth + 6, kTop - 8,
                        label(grid.columns[static_cast<size_t>(j)]));
  for (int i = 0; i < rows; ++i) {
    text += fmt::format("<text x=\"4\" y=\"{}\">{}</text>\n", kTop + i * kHeight + 20,
                        label(grid.rows[static_cast<size_t>(i)]));
    for (int j = 0; j < columns; ++j) {
      const auto it = grid.cells.find({static_cast<size_t>(i), static_cast<size_t>(j)});
      const int hue = it == grid.cells.end() ? 0 : it->second[0] * 137 % 360;
      text += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"hsl({},60%,82%)\" stroke=\"#444\"/>\n<text "
          "x=\"{}\" y=\"{}\">{}</text>\n",
          kLeft + j * kWidth, kTop + i * kHeight, kWidth, kHeight, hue, kLeft + j * kWidth + 6, kTop + i * kHeight + 20,
          it == grid.cells.end() ? "" : fmt::format("{}", fmt::join(it->second, " ")));
    }
  }
  return text + "</svg>\n";
}

}  // namespace tutti::dist
