// Token ids of a rendered chat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/io/added_tokens.h"
#include "tutti/io/chat_template/chat_template.h"
#include "tutti/io/tokenizer.h"

namespace tutti {

struct EncodedChat {
  std::vector<int32_t> ids;
  std::vector<bool> is_assistant;  // by token: whether some of it was written inside {% generation %}
};

// Encodes chats with one tokenizer, which must outlive it. Immutable; may be used by any thread.
//
// The ids are those that transformers gives for the whole text without add_special_tokens (the template writes BOS),
// but no special token is made of text that comes from a user, in whole or in part: the names of special tokens are
// plain text there, and the text is cut around them alone. So chats without such names have the ids that training has.
class ChatEncoder {
 public:
  explicit ChatEncoder(const Tokenizer& tokenizer);
  ChatEncoder(const ChatEncoder&) = delete;
  ChatEncoder& operator=(const ChatEncoder&) = delete;

  std::vector<int32_t> encode(const RenderedChat& chat) const;
  EncodedChat encode_marked(const RenderedChat& chat) const;

 private:
  // A part of the text that is encoded by itself.
  struct Piece {
    std::string text;
    bool parses_special;
    std::vector<bool> is_assistant;  // by byte
  };
  std::vector<Piece> pieces_of(const RenderedChat& chat, size_t& specials) const;
  static std::vector<Piece> spans_as_pieces(const RenderedChat& chat);
  std::vector<int32_t> encode(const std::vector<Piece>& pieces) const;
  std::vector<Piece> checked_pieces(const RenderedChat& chat) const;

  const Tokenizer& tokenizer_;
  std::vector<AddedToken> specials_;
  io::AddedTokenFinder finder_;  // refers to specials_
};

inline std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  return ChatEncoder(tokenizer).encode(chat);
}

}  // namespace tutti
