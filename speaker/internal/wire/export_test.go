package wire

// Delivered is how many frames the kernel has passed to the socket since this was last asked.
func (s *socket) Delivered() (uint32, error) {
	stats, err := s.conn.Stats()
	if err != nil {
		return 0, err
	}
	return stats.Packets, nil
}
