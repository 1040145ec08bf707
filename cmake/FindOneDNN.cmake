# oneDNN's own configuration asks for OpenCL's development files, which the CPU backend never uses. Gives OneDNN::dnnl.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR)
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES IMPORTED_LOCATION ${ONEDNN_LIBRARY}
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE_DIR})
endif()
