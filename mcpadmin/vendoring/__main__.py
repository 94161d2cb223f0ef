import sys

from mcpadmin.vendoring.cli import main

sys.exit(main(sys.argv[1:]))
