// The page at /: a chat with the model in a browser, in one file.
#pragma once

#include <string_view>

namespace tutti::generate::serve {

extern const std::string_view kChatPage;
// What the page may load and reach: itself and this server.
extern const std::string_view kChatPagePolicy;

}  // namespace tutti::generate::serve
