#include "tutti/job/rendezvous/init_url.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

int parse_number(std::string_view what, std::string_view digits, int smallest, int largest, const std::string& url) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  TUTTI_CHECK(error == std::errc() && end == digits.data() + digits.size() && value >= smallest && value <= largest,
              "init method '{}': {} is '{}'; expected a whole number from {} to {}", url, what, digits, smallest,
              largest);
  return value;
}

std::string decode_percent(std::string_view text, const std::string& url) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    int value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    TUTTI_CHECK(digits.size() == 2 && error == std::errc() && end == digits.data() + 2 && value > 0,
                "init method '{}': '%' must be followed by two hexadecimal digits", url);
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

void parse_query(std::string_view query, InitUrl& url) {
  const std::array<std::string, 2> known = {"rank", "world_size"};
  constexpr int kLargest = 1 << 30;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    const std::string name(pair.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? "" : pair.substr(equals + 1);
    TUTTI_CHECK(std::ranges::find(known, name) != known.end(), "init method '{}': {}", url.text,
                unknown_name_message("parameter", name, known));
    std::optional<int>& slot = name == "rank" ? url.rank : url.world_size;
    TUTTI_CHECK(!slot, "init method '{}': {} is given twice", url.text, name);
    slot = parse_number(name, value, name == "rank" ? 0 : 1, kLargest, url.text);
  }
}

void parse_tcp(std::string_view authority, InitUrl& url) {
  while (!authority.empty() && authority.back() == '/') authority.remove_suffix(1);
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
  std::string_view host = authority.substr(0, has_port ? colon : std::string_view::npos);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  TUTTI_CHECK(!host.empty(), "init method '{}': the host is missing; write tcp://host:port", url.text);
  TUTTI_CHECK(has_port && colon + 1 < authority.size(), "init method '{}': the port is missing; write tcp://host:port",
              url.text);
  url.host = host;
  url.port = parse_number("the port", authority.substr(colon + 1), 1, 65535, url.text);
}

}  // namespace

InitUrl parse_init_url(const std::string& text) {
  InitUrl url{.text = text};
  const size_t separator = text.find("://");
  TUTTI_CHECK(separator != std::string::npos,
              "init method '{}' has no scheme; write env://, tcp://host:port or file:///path", text);
  url.scheme = text.substr(0, separator);
  const std::array<std::string, 3> known = {"env", "tcp", "file"};
  TUTTI_CHECK(std::ranges::find(known, url.scheme) != known.end(), "init method '{}': no handler: {}", text,
              unknown_name_message("scheme", url.scheme, known));
  std::string_view rest = std::string_view(text).substr(separator + 3);
  const size_t question = rest.find('?');
  if (question != std::string_view::npos) parse_query(rest.substr(question + 1), url);
  rest = rest.substr(0, question);
  if (url.scheme == "tcp") parse_tcp(rest, url);
  if (url.scheme == "file") {
    url.path = decode_percent(rest, text);
    TUTTI_CHECK(url.path.size() > 1 && url.path[0] == '/',
                "init method '{}': the path is missing or not absolute; write file:///path, with three slashes", text);
  }
  TUTTI_CHECK(url.scheme != "env" || rest.empty(), "init method '{}': env:// takes no host or path", text);
  return url;
}

}  // namespace tutti::comm
