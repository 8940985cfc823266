#include "tutti/io/text_source.h"

#include "tutti/core/error.h"
#include "tutti/io/gzip.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/text_files.h"
#include "tutti/runtime/json_document.h"

namespace tutti {
namespace {

using Take = std::function<void(std::string_view)>;

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr std::string_view kDictHeader = "00-database";

bool is_blank(std::string_view text) { return text.find_first_not_of(kSpace) == std::string_view::npos; }

void take_unless_blank(std::string_view document, const Take& take) {
  if (!is_blank(document)) take(document);
}

// The line at `position` with its end of line taken off; `position` moves behind it.
std::string_view next_line(std::string_view text, size_t& position) {
  const size_t end = std::min(text.find('\n', position), text.size());
  std::string_view line = text.substr(position, end - position);
  position = std::min(end + 1, text.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void take_json_lines(std::string_view text, const std::string& file, const Take& take) {
  size_t position = 0;
  for (int64_t number = 1; position < text.size(); ++number) {
    const std::string_view line = next_line(text, position);
    if (is_blank(line)) continue;
    const JsonDocument value(line, {.name = file, .line = number});
    take_unless_blank(value.top().at("text").text(), take);
  }
}

void take_dict_entry(std::string_view entry, const Take& take) {
  if (is_blank(entry) || entry.starts_with(kDictHeader)) return;
  // One line end stays; the blank lines that separate entries go.
  take(entry.substr(0, std::min(entry.find_last_not_of(kSpace) + 2, entry.size())));
}

void take_dict_entries(std::string_view text, const Take& take) {
  size_t start = 0;
  bool behind_blank = true;
  for (size_t position = 0; position < text.size();) {
    const size_t line_start = position;
    const std::string_view line = next_line(text, position);
    if (line.empty()) {
      behind_blank = true;
      continue;
    }
    if (behind_blank && line[0] != ' ' && line[0] != '\t') {
      take_dict_entry(text.substr(start, line_start - start), take);
      start = line_start;
    }
    behind_blank = false;
  }
  take_dict_entry(text.substr(start), take);
}

// Where the section that begins with `text` ends.
size_t section_end(std::string_view text, size_t at_least) {
  if (text.size() <= at_least) return text.size();
  const std::string_view window = text.substr(0, 2 * at_least);
  for (const std::string_view border : {"\n\n", "\n"}) {
    const size_t found = window.find(border, at_least);
    if (found != std::string_view::npos) return found + border.size();
  }
  size_t end = window.size();
  if (end == text.size()) return end;
  // Not inside a UTF-8 sequence: step back over at most three continuation bytes.
  for (int step = 0; step < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; ++step) --end;
  return end;
}

void take_plain(std::string_view text, const Take& take, const TextSourceOptions& options) {
  if (static_cast<int64_t>(text.size()) <= options.large_file_nbytes) return take_unless_blank(text, take);
  while (!text.empty()) {
    const size_t end = section_end(text, static_cast<size_t>(options.section_nbytes));
    take_unless_blank(text.substr(0, end), take);
    text.remove_prefix(end);
  }
}

void take_contents(std::string_view text, std::string_view name, const std::string& file, const Take& take,
                   const TextSourceOptions& options) {
  if (name.ends_with(".jsonl")) return take_json_lines(text, file, take);
  if (name.ends_with(".dict")) return take_dict_entries(text, take);
  take_plain(text, take, options);
}

}  // namespace

void for_each_document(std::span<const std::string> files, const Take& take, const TextSourceOptions& options) {
  TUTTI_CHECK(options.section_nbytes >= 8 && options.large_file_nbytes >= 0,
              "section_nbytes is {} and large_file_nbytes {}; expected at least 8 and 0", options.section_nbytes,
              options.large_file_nbytes);
  for (const std::string& file : files) {
    std::string_view name = file;
    const bool named_gzip = name.ends_with(".gz") || name.ends_with(".dz");
    if (named_gzip) name.remove_suffix(3);
    const MappedFile mapped(file);
    if (named_gzip || is_gzip(mapped.bytes())) {
      take_contents(gunzip(mapped.bytes(), file), name, file, take, options);
    } else {
      take_contents(mapped.text(), name, file, take, options);
    }
  }
}

std::vector<std::string> read_documents(std::span<const std::string> paths, const TextSourceOptions& options) {
  std::vector<std::string> documents;
  const std::vector<std::string> files = expand_text_paths(paths);
  for_each_document(files, [&](std::string_view document) { documents.emplace_back(document); }, options);
  TUTTI_CHECK(!documents.empty(), "no text in the data: {} file(s) read, all empty, the first being '{}'", files.size(),
              files.front());
  return documents;
}

}  // namespace tutti
