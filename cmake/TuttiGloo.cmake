# Transport gloo makes and proves its connections itself and hands them over to gloo (tutti/comm/gloo/handover.h). That takes a gloo
# whose pairs listen each for itself and whose device takes handlers: one of before May 2023, such as libgloo-dev of Debian 12.
include(CheckCXXSourceCompiles)

# A configure error unless target `gloo` is such a library.
function(tutti_check_gloo)
  set(CMAKE_REQUIRED_LIBRARIES gloo)
  check_cxx_source_compiles([[
    #include <gloo/transport/context.h>
    #include <gloo/transport/pair.h>
    #include <gloo/transport/tcp/address.h>
    #include <gloo/transport/tcp/device.h>
    #if __has_include(<gloo/transport/tcp/listener.h>)
    #error "all pairs share one listener"
    #endif
    namespace tcp = gloo::transport::tcp;
    struct Held final : tcp::Handler {
      void handleEvents(int) override {}
    };
    int main() {
      Held held;
      const auto device = std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(tcp::attr("127.0.0.1")));
      device->registerDescriptor(0, 0, &held);
      device->unregisterDescriptor(0, &held);
      const auto context = device->createContext(0, 2);
      auto& pair = context->createPair(1);
      dynamic_cast<tcp::Handler*>(pair.get())->handleEvents(0);
      return tcp::Address(pair->address().bytes()).getSockaddr().ss_family;
    }]] TUTTI_GLOO_TAKES_CONNECTIONS)
  if(NOT TUTTI_GLOO_TAKES_CONNECTIONS)
    unset(TUTTI_GLOO_TAKES_CONNECTIONS CACHE)  # another one may be installed meanwhile
    message(FATAL_ERROR "The gloo in ${Gloo_DIR} does not take connections that were made outside of it, as those of before May 2023 do, "
                        "so its connections could not be proven. Install libgloo-dev of Debian 12 (0.0~git20220518), or configure with -DTUTTI_GLOO=OFF, which leaves out transport gloo, and hier without MPI.")
  endif()
endfunction()
