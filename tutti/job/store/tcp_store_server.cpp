#include "tutti/job/store/tcp_store_server.h"

#include <pthread.h>

#include <csignal>

#include "tutti/job/store/server_loop.h"

namespace tutti::comm {
namespace {

std::string address_to_bind(const TcpStoreServerOptions& options) {
  check_job_key(options.job_key);
  if (!options.job_key.empty()) return options.bind_address;
  if (options.bind_address.empty()) return "127.0.0.1";
  const std::string loopback = loopback_of(options.bind_address);
  TUTTI_CHECK(!loopback.empty(),
              "store server: listening on {} needs a job key; set TUTTI_JOB_KEY or TUTTI_JOB_KEY_FILE to the same "
              "secret on all hosts, or listen on 127.0.0.1",
              host_and_port(options.bind_address, options.port));
  return loopback;
}

}  // namespace

TcpStoreServer::TcpStoreServer(TcpStoreServerOptions options) {
  UniqueFd listener = listen_on(address_to_bind(options), options.port);
  port_ = local_port(listener.get());
  loop_ = std::make_unique<Loop>(std::move(listener), options.job_key);
  // Signals are for the threads of the program, not for this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { loop_->run(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw EnvironmentError(fmt::format("store server: cannot start its thread: {}", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TcpStoreServer::~TcpStoreServer() {
  if (process_.is_in_child()) {
    ForkGuard::keep(std::shared_ptr<Loop>(std::move(loop_)));
    ForkGuard::keep(std::make_shared<std::thread>(std::move(thread_)));
    return;
  }
  loop_->stop();
  thread_.join();
}

int64_t TcpStoreServer::num_clients() const { return loop_->num_clients(); }
int64_t TcpStoreServer::num_refused() const { return loop_->num_refused(); }
std::string TcpStoreServer::last_refusal() const { return loop_->last_refusal(); }

}  // namespace tutti::comm
