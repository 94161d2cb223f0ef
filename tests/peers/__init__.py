from tests.peers.peers import Peer, closed_port, free_port, peer_command, peer_python, run_peer, start_peer

__all__ = ["Peer", "closed_port", "free_port", "peer_command", "peer_python", "run_peer", "start_peer"]
