from mcpadmin.command_line.program import main

main()
