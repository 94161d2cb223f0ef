"""Bundles: several servers as one for agents, with the names and addresses by which they are known there"""
