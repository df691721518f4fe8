# The two session objects share no symbol of Asio's or of the session: one program may hold both.
# A shared one would be merged by the linker, and one session would run the other's code.

function(read_symbols object variable)
  execute_process(COMMAND ${NM} --demangle --defined-only ${object}
    OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "cannot read ${object}")
  endif()
  set(${variable} "${symbols}" PARENT_SCOPE)
endfunction()

function(expect_holds symbols part wanted object)
  string(FIND "${symbols}" "${part}" at)
  if(wanted AND at EQUAL -1)
    message(SEND_ERROR "${object} has no symbol with ${part}")
  elseif(NOT wanted AND NOT at EQUAL -1)
    string(SUBSTRING "${symbols}" ${at} 100 where)
    message(SEND_ERROR "${object} has a symbol with ${part}: ${where}")
  endif()
endfunction()

read_symbols(${EPOLL} epoll)
read_symbols(${IO_URING} io_uring)
expect_holds("${epoll}" "boost::asio::" TRUE ${EPOLL})
expect_holds("${epoll}" "rgpu::server::epoll::AsioSession" TRUE ${EPOLL})
expect_holds("${epoll}" "epoll_reactor" TRUE ${EPOLL})
expect_holds("${io_uring}" "boost::asio_io_uring::" TRUE ${IO_URING})
expect_holds("${io_uring}" "rgpu::server::io_uring::AsioSession" TRUE ${IO_URING})
expect_holds("${io_uring}" "boost::asio::" FALSE ${IO_URING})
expect_holds("${io_uring}" "boost_asio_" FALSE ${IO_URING})
expect_holds("${io_uring}" "epoll" FALSE ${IO_URING})
