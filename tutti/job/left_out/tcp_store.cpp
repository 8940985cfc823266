// A TcpStore cannot be made, so its calls are never reached; they are here because the class has them.
#include "tutti/job/store/tcp_store.h"

#include "tutti/job/left_out/left_out.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

[[noreturn]] void no_store() { throw_left_out("the store over TCP"); }

}  // namespace

class TcpConnection {};

TcpStore::TcpStore(TcpStoreOptions options) : options_(std::move(options)) {
  throw_left_out(fmt::format("the store over TCP, which {}:{} would name,", options_.host, options_.port));
}
TcpStore::~TcpStore() = default;

void TcpStore::set(std::string_view, std::string_view) { no_store(); }
std::string TcpStore::get(std::string_view, Timeout) { no_store(); }
int64_t TcpStore::add(std::string_view, int64_t) { no_store(); }
std::string TcpStore::compare_set(std::string_view, std::string_view, std::string_view) { no_store(); }
bool TcpStore::delete_key(std::string_view) { no_store(); }
bool TcpStore::check(const Keys&) { no_store(); }
void TcpStore::wait(const Keys&, Timeout) { no_store(); }
int64_t TcpStore::num_keys() { no_store(); }
void TcpStore::append(std::string_view, std::string_view) { no_store(); }
std::vector<std::string> TcpStore::multi_get(const Keys&, Timeout) { no_store(); }
void TcpStore::multi_set(const Keys&, const std::vector<std::string>&) { no_store(); }
Store::Keys TcpStore::list_keys(std::string_view) { no_store(); }
void TcpStore::queue_push(std::string_view, std::string_view) { no_store(); }
std::optional<std::string> TcpStore::queue_pop(std::string_view, bool, Timeout) { no_store(); }
int64_t TcpStore::queue_len(std::string_view) { no_store(); }
void TcpStore::barrier(std::string_view, int64_t, Timeout) { no_store(); }
std::shared_ptr<Store> TcpStore::clone() { no_store(); }
std::string TcpStore::address() const { no_store(); }

class TcpStoreServer::Loop {};

TcpStoreServer::TcpStoreServer(TcpStoreServerOptions) { throw_left_out("the server of a store over TCP"); }
TcpStoreServer::~TcpStoreServer() = default;
int64_t TcpStoreServer::num_clients() const { no_store(); }
int64_t TcpStoreServer::num_refused() const { no_store(); }
std::string TcpStoreServer::last_refusal() const { no_store(); }

}  // namespace tutti::comm
