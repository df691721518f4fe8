# The executables of the installed package; its library is installed by python/CMakeLists.txt.
# They find PyTorch's libraries beside the package, in the same site-packages.

foreach(program rgpu-opserver rgpu-relay)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
    install(TARGETS ${program} RUNTIME DESTINATION rgpu/bin COMPONENT python)
  endif()
endforeach()
