! call report_section("progress", "0.42 half of it"): reports of a section's program, by way of report.c
module section_reports
  use, intrinsic :: iso_c_binding, only: c_char, c_int, c_null_char
  implicit none
  interface
    integer(c_int) function c_report(word, text) bind(c, name="report")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: word(*), text(*)
    end function
  end interface
contains
  subroutine report_section(word, text)
    character(*), intent(in) :: word, text
    if (c_report(trim(word) // c_null_char, trim(text) // c_null_char) /= 0) error stop "the report was refused"
  end subroutine
end module
