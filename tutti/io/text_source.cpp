#include "tutti/io/text_source.h"

#include "tutti/core/error.h"
#include "tutti/io/binary_data.h"
#include "tutti/io/text_files.h"
#include "tutti/io/text_window.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti {

std::string describe(const TextCounts& counts) {
  const auto counted = [](int64_t n, const char* noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); };
  return fmt::format("read {}, {}, {}, skipped {} without text", counted(counts.files, "file"),
                     counted(counts.documents, "document"), counted(counts.nbytes, "byte"), counts.skipped);
}

namespace {

using io::TextWindow;
using Take = std::function<void(std::string_view)>;

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr std::string_view kDictHeader = "00-database";
constexpr size_t kShownKeys = 12;
constexpr size_t kMostValues = size_t{1} << 20;  // of one line

bool is_blank(std::string_view text) { return text.find_first_not_of(kSpace) == std::string_view::npos; }

// One file while it is read.
class Source {
 public:
  Source(const std::string& file, bool is_named_gzip, const Take& take, const TextSourceOptions& options,
         TextCounts& counts)
      : file_(file), window_(file, is_named_gzip), take_(take), options_(options), counts_(counts) {}

  void check_is_text() {
    window_.grow_to(io::kBinaryHeadNbytes);
    const std::string kind = io::binary_kind_of(window_.text());
    TUTTI_CHECK(kind.empty() || options_.reads_binary,
                "the data file '{}' is {}. To train on its bytes as they are, set data.binary = \"read\" "
                "(--read-binary of tutti tokenizer train)",
                file_, kind);
  }
  void take_json_lines();
  void take_dict_entries();
  void take_plain();

 private:
  struct Line {
    std::string_view text;  // without its end
    size_t nbytes = 0;      // with it
  };
  // The line that begins `from` bytes behind the position, of which nothing is known for a file that ends there.
  std::optional<Line> line_at(size_t from);
  void take(std::string_view document) {
    if (is_blank(document)) {
      ++counts_.skipped;
      return;
    }
    ++counts_.documents;
    counts_.nbytes += static_cast<int64_t>(document.size());
    take_(document);
  }
  void take_dict_entry(std::string_view entry);
  std::string_view text_of(const JsonDocument& line) const;

  const std::string& file_;
  TextWindow window_;
  const Take& take_;
  const TextSourceOptions& options_;
  TextCounts& counts_;
  int64_t line_number_ = 0;
};

std::optional<Source::Line> Source::line_at(size_t from) {
  const auto longest = static_cast<size_t>(options_.longest_nbytes);
  size_t searched = from;
  for (;;) {
    const std::string_view text = window_.text();
    // No farther than the longest line, so that a file that is one line is not read as a whole.
    const size_t end = text.substr(0, std::min(text.size(), from + longest + 1)).find('\n', searched);
    const bool is_found = end != std::string_view::npos;
    TUTTI_CHECK(is_found || text.size() - from <= longest,
                "{}:{}: the line has more than {} bytes; cut its text into several documents, one on a line", file_,
                line_number_ + 1, longest);
    searched = text.size();
    if (!is_found && window_.grow()) continue;
    if (!is_found && text.size() == from) return std::nullopt;
    ++line_number_;
    Line line{.text = text.substr(from, is_found ? end - from : std::string_view::npos)};
    line.nbytes = line.text.size() + (is_found ? 1 : 0);
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    return line;
  }
}

std::string_view Source::text_of(const JsonDocument& line) const {
  const JsonValue top = line.top();
  if (const auto text = top.find(options_.text_field)) return text->text();
  std::string keys;
  size_t count = 0;
  for (const auto entry : top) {
    if (++count <= kShownKeys) keys += fmt::format("{}{}", count == 1 ? "" : ", ", json_quoted(entry.key));
  }
  if (count > kShownKeys) keys += fmt::format(" and {} more", count - kShownKeys);
  top.fail("has no '{}'; {}", options_.text_field,
           count == 0 ? "it has no keys at all"
                      : fmt::format("its keys are {}. Name the one that holds the text: data.text_field, or "
                                    "--text-field of tutti tokenizer train",
                                    keys));
}

void Source::take_json_lines() {
  while (const auto line = line_at(0)) {
    if (!is_blank(line->text)) {
      const JsonDocument value(line->text, {.name = file_, .line = line_number_}, {.values = kMostValues});
      take(text_of(value));
    }
    window_.drop(line->nbytes);
  }
}

void Source::take_dict_entry(std::string_view entry) {
  if (is_blank(entry)) return;  // before the first
  if (entry.starts_with(kDictHeader)) {
    ++counts_.skipped;
    return;
  }
  // One line end stays; the blank lines that separate entries go.
  take(entry.substr(0, std::min(entry.find_last_not_of(kSpace) + 2, entry.size())));
}

void Source::take_dict_entries() {
  size_t entry = 0;  // bytes of the entry so far
  bool behind_blank = true;
  while (const auto line = line_at(entry)) {
    if (behind_blank && !line->text.empty() && line->text[0] != ' ' && line->text[0] != '\t') {
      take_dict_entry(window_.text().substr(0, entry));
      window_.drop(entry);
      entry = 0;
    }
    behind_blank = line->text.empty();
    entry += line->nbytes;
    TUTTI_CHECK(entry <= static_cast<size_t>(options_.longest_nbytes),
                "{}:{}: the entry that ends here has more than {} bytes; an entry begins at a line without indentation "
                "behind a blank line",
                file_, line_number_, options_.longest_nbytes);
  }
  take_dict_entry(window_.text().substr(0, entry));
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

void Source::take_plain() {
  const auto at_least = static_cast<size_t>(options_.section_nbytes);
  window_.grow_to(static_cast<size_t>(options_.large_file_nbytes) + 1);
  if (static_cast<int64_t>(window_.text().size()) <= options_.large_file_nbytes) return take(window_.text());
  for (;;) {
    window_.grow_to(2 * at_least + 1);  // one more than section_end() looks at tells whether the file ends there
    const std::string_view text = window_.text();
    if (text.empty()) return;
    const size_t end = section_end(text, at_least);
    take(text.substr(0, end));
    window_.drop(end);
  }
}

}  // namespace

TextCounts for_each_document(std::span<const std::string> files, const Take& take, const TextSourceOptions& options) {
  TUTTI_CHECK(options.section_nbytes >= 8 && options.large_file_nbytes >= 0 && options.longest_nbytes >= 8,
              "section_nbytes is {}, large_file_nbytes {} and longest_nbytes {}; expected at least 8, 0 and 8",
              options.section_nbytes, options.large_file_nbytes, options.longest_nbytes);
  TextCounts counts;
  for (const std::string& file : files) {
    std::string_view name = file;
    const bool is_named_gzip = name.ends_with(".gz") || name.ends_with(".dz");
    if (is_named_gzip) name.remove_suffix(3);
    ++counts.files;
    Source source(file, is_named_gzip, take, options, counts);
    const TextCounts before = counts;
    source.check_is_text();
    if (name.ends_with(".jsonl")) source.take_json_lines();
    else if (name.ends_with(".dict")) source.take_dict_entries();
    else source.take_plain();
    if (counts.documents == before.documents && counts.skipped == before.skipped) ++counts.skipped;
  }
  return counts;
}

TextDocuments read_counted_documents(std::span<const std::string> paths, const TextSourceOptions& options) {
  TextDocuments read;
  const std::vector<std::string> files = expand_text_paths(paths);
  read.counts =
      for_each_document(files, [&](std::string_view document) { read.documents.emplace_back(document); }, options);
  TUTTI_CHECK(!read.documents.empty(), "no text in the data: {} file(s) read, all empty, the first being '{}'",
              files.size(), files.front());
  return read;
}

std::vector<std::string> read_documents(std::span<const std::string> paths, const TextSourceOptions& options) {
  return read_counted_documents(paths, options).documents;
}

}  // namespace tutti
